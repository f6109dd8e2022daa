"""The command line as `python -m occupax`."""

from occupax_command import main

if __name__ == "__main__":
    main()
