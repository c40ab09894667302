package config

import (
	"strings"
	"testing"
)

func TestRegexesOfPaths(t *testing.T) {
	with := func(path string) string {
		return strings.Replace(kinds["rewrite"], "hostname: b.example", "path: {"+path+"}", 1)
	}
	c, err := Parse("f", []byte(with("type: ReplaceRegexMatch, pattern: '/item/(\\d+)', value: '/items/$1?x'")))
	if err != nil {
		t.Fatal(err)
	}
	if p := c.Routes[0].Rules[0].Filters[0].Path; p.Pattern != `/item/(\d+)` || p.Value != "/items/$1?x" {
		t.Errorf("%+v", p)
	}
	for _, bad := range []struct{ file, want string }{
		{with("type: ReplaceRegexMatch, value: /"), `lacks the key "pattern"`},
		{with("type: ReplaceFullPath, pattern: /a, value: /"), "pattern is not for ReplaceFullPath"},
		{with("type: ReplaceRegexMatch, pattern: '(', value: /"), "missing closing )"},
		{with("type: ReplaceRegexMatch, pattern: '/(.*)', value: '/$2'"), "no group 2"},
		{with("type: ReplaceRegexMatch, pattern: '/(.*)', value: '$1'"), "begins with a slash"},
		{strings.Replace(with("type: ReplaceRegexMatch, pattern: '/(.*)', value: '/$1'"), "name: r,", "name: r, forward_path: raw,", 1), "forward_path: raw"},
	} {
		if _, err := Parse("f", []byte(bad.file)); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%s: %v, want %q", bad.file, err, bad.want)
		}
	}
}
