package admin

import (
	"net/netip"
	"net/url"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l4/control"
)

func TestAQueryIsReadAsItWasWritten(t *testing.T) {
	for _, q := range []Query{
		{},
		{Service: "web", Backend: "b&1 = x", Limit: 7},
		{Client: netip.MustParsePrefix("198.18.0.0/15")},
		{Client: netip.MustParsePrefix("2001:db8::1/128"), Limit: 1},
	} {
		v, err := url.ParseQuery(q.Values().Encode())
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ParseQuery(v); err != nil || got != q {
			t.Errorf("%+v came back as %+v, %v", q, got, err)
		}
	}
}

func TestAClientIsAnAddressOrAPrefix(t *testing.T) {
	for s, want := range map[string]string{
		"198.18.0.1": "198.18.0.1/32", "2001:db8::1": "2001:db8::1/128", "198.18.7.9/15": "198.18.0.0/15", "::ffff:198.18.0.1": "198.18.0.1/32", "fe80::1%eth0": "fe80::1/128", "x": "", "198.18.0.0/33": "",
	} {
		p, err := ParseClient(s)
		if (err == nil) != (want != "") || err == nil && p.String() != want {
			t.Errorf("%s: %v, %v", s, p, err)
		}
	}
}

func TestDurationsHaveUnits(t *testing.T) {
	var d Duration
	if err := d.UnmarshalText([]byte("90s")); err != nil || time.Duration(d) != 90*time.Second {
		t.Errorf("%v, %v", d, err)
	}
	if text, err := d.MarshalText(); err != nil || string(text) != "1m30s" {
		t.Errorf("%s, %v", text, err)
	}
	if err := d.UnmarshalText([]byte("90")); err == nil {
		t.Error("a number without a unit was taken")
	}
}

func TestOfManyChangesTheFirstAreListed(t *testing.T) {
	var all []config.Change
	for i := range 3000 {
		all = append(all, config.Change{What: []string{"added", "removed", "changed"}[i%3], Key: strconv.Itoa(i)})
	}
	c := NewChanges(all)
	if c.Added != 1000 || c.Removed != 1000 || c.Changed != 1000 || len(c.List) != 1000 || cap(c.List) > 1500 || c.More != 2000 || c.List[999].Key != "999" {
		t.Errorf("%d added, %d removed, %d changed, %d listed, %d more", c.Added, c.Removed, c.Changed, len(c.List), c.More)
	}
	if c := NewChanges(nil); c.List == nil || c.More != 0 {
		t.Errorf("%+v", c)
	}
}

func TestASelectionIsReadAsItWasWritten(t *testing.T) {
	for _, s := range []control.Selection{{}, {Services: []string{"a", "b&c"}, Backend: "x", Limit: 9}, {Foremost: 50}, {Summary: true}} {
		v, err := url.ParseQuery(SelectionValues(&s).Encode())
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ParseSelection(v); err != nil || !reflect.DeepEqual(got, s) {
			t.Errorf("%+v came back as %+v, %v", s, got, err)
		}
	}
	for _, wrong := range []string{"client=198.18.0.1", "limit=-1", "backend=a&backend=b", "x=", "foremost=0", "foremost=x", "foremost=1&foremost=2", "summary=1", "summary=true&summary=true"} {
		if v, _ := url.ParseQuery(wrong); v != nil {
			if _, err := ParseSelection(v); err == nil {
				t.Errorf("%s is taken", wrong)
			}
		}
	}
}
