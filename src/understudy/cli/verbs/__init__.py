"""The verbs, one file each, imported when the verb is called."""
