package config

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestKeysOfAffinity(t *testing.T) {
	c, err := Parse("f", []byte(checked("HTTP", "affinity: {by: cookie, name: sid, ttl: 5m, entries: 1000}")))
	if err != nil {
		t.Fatal(err)
	}
	if want := (&Affinity{By: HashCookie, Name: "sid", TTL: 5 * time.Minute, Entries: 1000}); !reflect.DeepEqual(c.Pools[0].Affinity, want) {
		t.Errorf("%+v", c.Pools[0].Affinity)
	}
	if c, err = Parse("f", []byte(checked("HTTP", "affinity: {}"))); err != nil || !reflect.DeepEqual(c.Pools[0].Affinity, newAffinity()) {
		t.Errorf("%v", err)
	}
	for _, bad := range []struct{ file, want string }{
		{checked("HTTP", "affinity: {by: header}"), `lacks the key "name"`},
		{checked("HTTP", "affinity: {name: x}"), "name is not for affinity by client"},
		{checked("HTTP", "affinity: {by: path}"), "client"},
		{checked("HTTP", "affinity: {}, sticky: {}"), "leave one of them out"},
		{checked("HTTP", "affinity: {entries: 7}"), "entries"},
		{checked("HTTP", "affinity: {ttl: 100ms}"), "ttl"},
		{strings.Replace(kinds["tcp"], "protocol: TCP, backends", "protocol: TCP, affinity: {by: query, name: x}, backends", 1), "passes TCP through"},
	} {
		if _, err := Parse("f", []byte(bad.file)); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%s: %v, want %q", bad.file, err, bad.want)
		}
	}
}
