"""The commands: each reads its arguments, calls the library, and shows what that returns."""
