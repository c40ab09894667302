package tcp

import "testing"

func TestTermsFitIntoAStamp(t *testing.T) {
	for scale := range synTerms(16) {
		for _, sack := range []synTerms{0, termsSACK} {
			for _, e := range []ecnAgreed{ecnNone, ecnClassic} {
				want := (scale | sack | termsTimestamps).withECN(e)
				if got := termsOfStamp(stampOf(want)); got != want {
					t.Errorf("%#x came back as %#x", want, got)
				}
			}
		}
	}
}
