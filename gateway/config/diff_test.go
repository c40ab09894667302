package config

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const diffBase = `
devices: [{name: gw0}]
snat: [198.18.2.1]
services:
  - name: web
    address: 198.18.1.1:80
    backends:
      - {name: b1, address: 198.18.2.11:80}
      - {name: b2, address: 198.18.2.12:80}
  - name: dns
    protocol: udp
    address: 198.18.1.1:53
    backends: [{name: d1, address: 198.18.2.11:53}]
`

func TestDiffSaysWhatChanges(t *testing.T) {
	for _, c := range []struct {
		replace []string
		want    []string
	}{
		{nil, nil},
		{[]string{"name: gw0", "name: gw1"}, []string{"~ devices (needs a restart: a reload refuses it)"}},
		{[]string{"snat: [198.18.2.1]", "snat: [198.18.2.1]\nspin: 7us"}, []string{"~ spin 5µs -> 7µs (needs a restart: a reload refuses it)"}},
		{[]string{"snat: [198.18.2.1]", "snat: [198.18.2.1]\ntable: {udp: 1m}"}, []string{"~ table"}},
		{[]string{"snat: [198.18.2.1]", "snat: [198.18.2.1]\ntable: {size: 4096}"}, []string{"~ table (needs a restart: a reload refuses it)"}},
		{[]string{"snat: [198.18.2.1]", "snat: [198.18.2.3]"}, []string{"~ snat [198.18.2.1] -> [198.18.2.3]"}},
		{[]string{"name: dns", "name: dns\n    slow_start: 10s"}, []string{"~ service dns: slow_start 0s -> 10s"}},
		{[]string{"name: dns", "name: dns\n    health: {type: tcp, port: 80}"}, []string{"~ service dns: health none -> ..."}},
		{
			[]string{"name: b2, address: 198.18.2.12:80", "name: b2, address: 198.18.2.13:80, weight: 3"},
			[]string{"~ backend web/b2: address [198.18.2.12:80] -> [198.18.2.13:80]", "~ backend web/b2: weight 1 -> 3"},
		},
		{[]string{"name: b2", "name: b9"}, []string{"+ backend web/b9 ([198.18.2.12:80])", "- backend web/b2 ([198.18.2.12:80])"}},
		{[]string{"name: dns", "name: names"}, []string{"+ service names (1 backend)", "- service dns (1 backend)"}},
	} {
		old, err := Parse("a", []byte(diffBase))
		if err != nil {
			t.Fatal(err)
		}
		src := diffBase
		if c.replace != nil {
			src = strings.Replace(src, c.replace[0], c.replace[1], 1)
		}
		now, err := Parse("b", []byte(src))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, ch := range Diff(old, now) {
			got = append(got, ch.String())
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%q: %s", c.replace, diff)
		}
	}
}

func TestDiffSaysWhatChangesAtL7(t *testing.T) {
	src := `listeners:
- {name: web, address: "198.18.0.1:80", protocol: HTTP}
- {name: db, address: "198.18.0.1:5432", protocol: TCP}
routes:
- {name: r, listeners: web, rules: [{backend_refs: [{name: p}]}]}
tcp_routes: [{name: db, backend_refs: [{name: t}]}]
pools:
- {name: p, backends: [{name: a, address: "198.18.1.1:80"}, {name: b, address: "198.18.1.2:80"}]}
- {name: t, protocol: TCP, backends: [{address: "198.18.1.1:5432"}]}
`
	parsed := func(src string) *Config {
		t.Helper()
		c, err := Parse("f", []byte(src))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	old := parsed(src)
	for _, c := range []struct {
		replace []string
		want    []string
	}{
		{[]string{"x", "x"}, nil},
		{
			[]string{"listeners:\n", "stack: kernel\nloops: 2\naccess_log: {file: \"-\"}\nlisteners:\n"},
			[]string{"~ loops 0 -> 2 (needs a restart: a reload refuses it)", "~ access_log"},
		},
		{
			[]string{"198.18.0.1:80", "198.18.0.1:81", "protocol: HTTP}", "protocol: HTTP, timeouts: {idle: 1s}}"},
			[]string{"~ listener web: address [198.18.0.1:80] -> [198.18.0.1:81]", "~ listener web: timeouts"},
		},
		{
			[]string{"- {name: db, address: \"198.18.0.1:5432\", protocol: TCP}\n", "", "tcp_routes: [{name: db, backend_refs: [{name: t}]}]\n", ""},
			[]string{"- listener db ([198.18.0.1:5432])", "- route db"},
		},
		{[]string{"{name: r, listeners: web,", "{name: s,"}, []string{"+ route s (1 rule)", "- route r (1 rule)"}},
		{[]string{"listeners: web, rules: [{", "rules: [{timeouts: {request: 1s}, "}, []string{"~ route r: listeners", "~ route r: rules"}},
		{
			[]string{"{name: b, address: \"198.18.1.2:80\"}", "{name: c, address: \"198.18.1.3:80\"}", "{name: a,", "{name: a, weight: 3,", "{name: p,", "{name: p, drain: 1s,"},
			[]string{"~ pool p: drain 0s -> 1s", "~ backend p/a: weight 1 -> 3", "+ backend p/c (198.18.1.3:80)", "- backend p/b (198.18.1.2:80)"},
		},
	} {
		var got []string
		for _, change := range Diff(old, parsed(strings.NewReplacer(c.replace...).Replace(src))) {
			got = append(got, change.String())
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%q: %s", c.replace, diff)
		}
	}
}

// Every key of Diff is one that the file knows, and no secret is shown.
func TestDiffNamesKeysOfTheFile(t *testing.T) {
	known := map[string]bool{}
	for _, of := range []any{Config{}, Service{}, Backend{}, Listener{}, Route{}, StreamRoute{}, Pool{}, PoolBackend{}} {
		for i := range reflect.TypeOf(of).NumField() {
			f := reflect.TypeOf(of).Field(i)
			if key := keyName(reflect.TypeOf(of), f.Name); f.IsExported() && key != "" {
				known[key] = true
			}
		}
	}
	inFile := map[string]bool{}
	for _, k := range Schema().Keys() {
		inFile[k.Path[strings.LastIndexByte(k.Path, '.')+1:]] = true
	}
	for key := range known {
		if !inFile[key] {
			t.Errorf("no file has a key %q", key)
		}
	}
	a, b := &Config{Sync: &Sync{Key: []byte("a secret")}}, &Config{Sync: &Sync{Key: []byte("another")}}
	if list := Diff(a, b); len(list) != 1 || list[0].Old != "" || list[0].New != "" || !list[0].Restart {
		t.Errorf("%+v", list)
	}
}
