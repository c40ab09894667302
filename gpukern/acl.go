package gpukern

// ACL is a compiled list of 5-tuple rules.
type ACL struct{}
