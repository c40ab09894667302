package semantics

// Lines counts the field lines of a section, as HTTP/1.1 would have them: pseudo-headers are no lines, and all of Cookie is one,
// which HTTP/2 and HTTP/3 split for better compression (RFC 9113 8.2.3, RFC 9114 4.2.1).
type Lines struct {
	n      int
	cookie bool
}

// Add counts a line, and reports whether there are no more than most; 0 is no limit.
func (l *Lines) Add(name string, most int) bool {
	switch {
	case name != "" && name[0] == ':', name == "cookie" && l.cookie:
		return true
	case name == "cookie":
		l.cookie = true
	}
	l.n++
	return most == 0 || l.n <= most
}
