// Package layers has no code. Its tests hold the rules of the tree: which package may import which, what pure packages may
// use, how large packages, types and files may be, how comments and words are written, and that no test bounds wall time.
package layers
