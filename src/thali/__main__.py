"""`python -m thali` is the command line."""

from thali.cli.main import run

if __name__ == "__main__":
    run()
