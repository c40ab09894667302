// Package suggest finds the word that a misspelt one was probably meant to be, for error messages of rule files,
// configurations and the command line.
package suggest

import "strings"

// Nearest returns the first of the candidates with the smallest Distance to word, if that is at most limit; else "". A
// candidate that shares no letter with word is never suggested, however short both are. Case does not count.
func Nearest(word string, limit int, candidates ...string) string {
	best, least := "", limit+1
	word = strings.ToLower(word)
	for _, c := range candidates {
		if d := Distance(word, strings.ToLower(c)); d < least && d < len(c) {
			best, least = c, d
		}
	}
	return best
}

// longest is the length in bytes from which words are not compared: keywords, keys and flags are shorter, and the
// table of Distance stays on the stack.
const longest = 32

// Distance returns how many letters must be inserted, removed, replaced or swapped with their neighbour to turn a into
// b: the optimal string alignment distance, which edits no letter twice. It is longest where a word is longer than that.
func Distance(a, b string) int {
	if len(a) > longest || len(b) > longest {
		return longest
	}
	var d [longest + 1][longest + 1]int // d[i][j] is the distance from a[:i] to b[:j]
	for i := range len(a) + 1 {
		d[i][0] = i
	}
	for j := range len(b) + 1 {
		d[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d[i][j] = min(d[i-1][j]+1, d[i][j-1]+1, d[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d[i][j] = min(d[i][j], d[i-2][j-2]+1)
			}
		}
	}
	return d[len(a)][len(b)]
}
