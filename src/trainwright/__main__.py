"""`python -m trainwright`: the command line without an installed script."""

from trainwright.cli.main import main

if __name__ == "__main__":
    main()
