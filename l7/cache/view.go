package cache

import "unsafe"

// view returns b as a string without a copy. It is valid until b changes.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
