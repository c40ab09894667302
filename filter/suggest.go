package filter

import "fmt"

// suggest returns "; did you mean X?" for the one of words that w was probably meant to be, "" where
// none is close.
func suggest(w string, words ...string) string {
	best, near := "", 3
	for _, s := range words {
		if d := Distance(w, s); d < near && d < len(s) {
			best, near = s, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", best)
}

// Distance returns how many letters must be put in, taken out, replaced or swapped with their
// neighbour to make a into b (Damerau's distance, each place edited once). It gives up on long
// words, which nobody misspells into a keyword.
func Distance(a, b string) int {
	const long = 16
	if len(a) > long || len(b) > long {
		return long
	}
	var d [long + 1][long + 1]int
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
