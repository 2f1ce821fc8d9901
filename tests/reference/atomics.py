"""Twin of thali.kernels.atomics, for one thread."""


def wait_until(numbers, i, value):
    assert numbers[i] >= value, "nobody else would do it"
