package semantics

// Programs behind CGI and what took its interface over (PHP, WSGI, Rack) read a field as a variable, whose name has "_" in place
// of "-" (RFC 3875 4.1.18), and many put "_" in place of every other character that no variable has. So fields of different
// names become one variable: X_Real.IP is read as X-Real-IP. nginx drops names with "_" for that reason.

// IsPlainName reports whether a field name, in lower case, has only letters, digits and hyphens. Two such names that differ are
// different variables.
func IsPlainName(name string) bool { return all(name, inPlain) }

// SameVariable reports whether two field names in lower case become the same variable.
func SameVariable(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if a[i] != b[i] && (classes[a[i]]&inVariable != 0 || classes[b[i]]&inVariable != 0) {
			return false
		}
	}
	return true
}
