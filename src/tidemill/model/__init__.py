"""Words that everything else is written in: ids, topics, settings of topics, errors. Pure."""
