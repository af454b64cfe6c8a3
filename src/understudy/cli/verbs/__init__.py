"""The verbs, one file each; a file is imported when its verb is called."""
