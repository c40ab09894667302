package inspect

// indexFold returns where lower, which is in lower case, begins in text, whose ASCII letters count in both cases.
func indexFold(text, lower []byte) int {
	n := len(lower)
	if n == 0 || len(text) < n {
		return -1
	}
	first := lower[0]
	other := first
	if first >= 'a' && first <= 'z' {
		other -= 32
	}
	for at := 0; at+n <= len(text); at++ {
		if c := text[at]; (c == first || c == other) && equalFold(text[at:at+n], lower) {
			return at
		}
	}
	return -1
}

// lowered returns a copy of b with the letters of ASCII in lower case. bytes.ToLower would replace bytes that are not UTF-8.
func lowered(b []byte) []byte {
	return mapBytes(b, func(c byte) byte {
		if c >= 'A' && c <= 'Z' {
			c += 32
		}
		return c
	})
}

// equalNames reports whether two texts of one length are equal but for the case of ASCII letters.
func equalNames(a, b []byte) bool {
	for i, c := range a {
		d := b[i]
		if c != d && (c|32 != d|32 || c|32 < 'a' || c|32 > 'z') {
			return false
		}
	}
	return true
}

func equalFold(b, lower []byte) bool {
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			c += 32
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}
