"""Commands of `occupax`, grouped by subject."""
