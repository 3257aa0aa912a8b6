"""Stories with a question: facts among sentences of real text, made up as they are needed, or the real BABILong from a folder."""
