"""`python -m goatbench`: what a sweep starts its children with."""

from .cli import main

if __name__ == "__main__":
    main()
