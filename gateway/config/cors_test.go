package config

import (
	"strings"
	"testing"
	"time"
)

func TestKeysOfCORS(t *testing.T) {
	with := func(keys string) string {
		return strings.Replace(kinds["http"], "type: RequestHeaderModifier, remove: [x]", "type: CORS"+keys, 1)
	}
	c, err := Parse("f", []byte(with(", allow_origins: ['https://a.example', 'https://*.b.example:8443'], allow_credentials: true, allow_methods: '*', allow_headers: [x-a, x-b], max_age: 1m")))
	if err != nil {
		t.Fatal(err)
	}
	f := c.Routes[0].Rules[0].Filters[0]
	if len(f.AllowOrigins) != 2 || !f.AllowCredentials || f.AllowMethods[0] != "*" || len(f.AllowHeaders) != 2 || f.MaxAge != time.Minute {
		t.Errorf("%+v", f)
	}
	for _, c := range []struct{ keys, want string }{
		{"", "CORS lacks the key"},
		{", allow_origins: ['*', 'https://a.example']", "beside others"},
		{", allow_origins: '*', allow_credentials: true", "scripts of every site would act as the user"},
		{", allow_origins: a.example", "allow_origins cannot be"},
		{", allow_origins: 'https://a.example/'", "allow_origins cannot be"},
		{", allow_origins: 'https://A.example'", "allow_origins cannot be"},
		{", allow_origins: 'ftp://a.example'", "allow_origins cannot be"},
		{", allow_origins: 'https://a.*.example'", "allow_origins cannot be"},
		{", allow_origins: 'https://a.example:x'", "allow_origins cannot be"},
		{", allow_origins: '*', allow_methods: 'PUT, GET'", "allow_methods cannot be"},
		{", allow_origins: '*', set: [{name: a, value: b}]", "set is not for CORS"},
	} {
		if _, err := Parse("f", []byte(with(c.keys))); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.keys, err, c.want)
		}
	}
}
