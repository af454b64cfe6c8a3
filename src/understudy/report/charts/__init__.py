"""Charts as inline SVG: drawn here, coloured by the page's CSS variables, each with its title and description."""
