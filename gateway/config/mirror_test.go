package config

import (
	"strings"
	"testing"
)

func TestKeysOfMirrors(t *testing.T) {
	with := func(filter string) string {
		return strings.Replace(kinds["mirror"], "type: RequestMirror, pool: p", "type: RequestMirror"+filter, 1)
	}
	c, err := Parse("f", []byte(with(", pool: p")))
	if err != nil {
		t.Fatal(err)
	}
	if f := c.Routes[0].Rules[0].Filters[0]; f.Pool != "p" || f.Percent != 100 || f.ContentBytes != 65536 {
		t.Errorf("%+v", f)
	}
	tcp := "pools: [{name: t, protocol: TCP, backends: [{address: 127.0.0.1:2}]}, {name: x, proxy_protocol: v1, backends: [{address: 127.0.0.1:3}]}, "
	for _, bad := range []struct{ file, want string }{
		{with(""), `lacks the key "pool"`},
		{with(", pool: q"), `unknown pool "q"`},
		{with(", pool: p, percent: 0"), "percent"},
		{with(", pool: p, percent: 101"), "percent"},
		{with(", pool: p, content_bytes: 4194305"), "4194304"},
		{strings.Replace(with(", pool: t"), "pools: [", tcp, 1), "speaks TCP"},
		{strings.Replace(with(", pool: x"), "pools: [", tcp, 1), "belong to one client"},
		{strings.Replace(with(", pool: p"), "backend_refs: [{name: p}]", "static: {root: /}", 1), "RequestMirror has no effect"},
		{strings.Replace(kinds["cors"], "type: CORS", "type: CORS, pool: p", 1), "pool is not for CORS"},
	} {
		if _, err := Parse("f", []byte(bad.file)); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%s: %v, want %q", bad.file, err, bad.want)
		}
	}
}
