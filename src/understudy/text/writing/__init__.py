"""From seeds to texts: prompt templates as data, the prompting loop, choosing among samples. All post-processing."""
