package config

import (
	"strings"
	"testing"
)

func TestEarlyHintsOfRules(t *testing.T) {
	with := func(hints string) string {
		return strings.Replace(kinds["http"], "matches: [{}]", "matches: [{}], early_hints: "+hints, 1)
	}
	c, err := Parse("f", []byte(with("['</a.css>; rel=preload; as=style', '<https://b.example>; rel=preconnect']")))
	if err != nil || len(c.Routes[0].Rules[0].EarlyHints) != 2 {
		t.Fatal(err)
	}
	for _, bad := range []struct{ file, want string }{
		{with("/a.css"), "no value of Link"}, {with(`"<a>\n"`), "no value of Link"}, {strings.Replace(kinds["answers"], "matches: [{}]", "matches: [{}], early_hints: '</a>; rel=preload'", 1), "early_hints has no effect"},
	} {
		if _, err := Parse("f", []byte(bad.file)); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%s: %v, want %q", bad.file, err, bad.want)
		}
	}
}
