# Prints the paragraphs of `copyright` that apply to the Python client: the general ones and their licence.
BEGIN { RS = ""; ORS = "\n\n" }
/^Format:/ { sub(/\nComment:.*/, "") }
/^Format:/ || /^Files: \*/ || /^License: Expat\n/
