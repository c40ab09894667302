package semantics

// Repeats reports whether a request has two lines of a field that has one value: credentials, conditions and ranges (RFC 9110 5.3).
// Recipients differ in which of the two they take, and so a check in front of a backend may see another one than the backend does.
func Repeats(fields []Field) bool {
	var seen uint8
	for i := range fields {
		var bit uint8
		switch name := fields[i].Name; len(name) { // most names have another length, and no string is compared
		case 8:
			if name == "if-range" {
				bit = 1 << 0
			}
		case 13:
			switch name {
			case "authorization":
				bit = 1 << 1
			case "content-range":
				bit = 1 << 2
			}
		case 17:
			if name == "if-modified-since" {
				bit = 1 << 3
			}
		case 19:
			switch name {
			case "if-unmodified-since":
				bit = 1 << 4
			case "proxy-authorization":
				bit = 1 << 5
			}
		}
		if seen&bit != 0 {
			return true
		}
		seen |= bit
	}
	return false
}

// ContentRanges counts the lines of Content-Range in a response, and reports whether all say the same (RFC 9110 14.4). Lines that
// differ place the content at two offsets, of which caches and clients take one or the other.
func ContentRanges(fields []Field) (lines int, agree bool) {
	first := ""
	for i := range fields {
		f := &fields[i]
		if len(f.Name) != 13 || f.Name != "content-range" {
			continue
		}
		if lines++; lines == 1 {
			first = f.Value
		} else if f.Value != first {
			return lines, false
		}
	}
	return lines, true
}

// OneContentRange returns fields with the first line of Content-Range alone. It changes fields.
func OneContentRange(fields []Field) []Field { return once(fields, "content-range") }
