package tcp

import (
	"testing"

	"github.com/millrace/millrace/tcp/ecn"
)

func TestTermsFitIntoAStamp(t *testing.T) {
	for scale := range synTerms(16) {
		for _, sack := range []synTerms{0, termsSACK} {
			for _, e := range []ecn.Mode{ecn.None, ecn.Classic} {
				want := (scale | sack | termsTimestamps).withECN(e)
				if got := termsOfStamp(stampOf(want)); got != want {
					t.Errorf("%#x came back as %#x", want, got)
				}
			}
		}
	}
}
