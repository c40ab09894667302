package upgrade

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestMessagesOfVersion1 reads what a program of version 1 of the format has sent, field by field: an upgrade from one that was released
// must work. These files do not change; another version gets files of its own.
func TestMessagesOfVersion1(t *testing.T) {
	read := func(name string, to any) {
		t.Helper()
		b, err := os.ReadFile(filepath.Join("testdata", "v1", name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		var m message
		if err := json.Unmarshal(b, &m); err != nil || m.Kind != name {
			t.Fatalf("%s is %q, %v", name, m.Kind, err)
		}
		if err := json.Unmarshal(m.Body, to); err != nil {
			t.Error(name, err)
		}
	}
	var o Offer
	if read(kindOffer, &o); o.Least != 1 || o.Most != 1 || o.PID != 42 || o.Build != "1.0" || o.Generation != 3 || o.Program.Path != "/usr/bin/millrace" ||
		len(o.Program.Args) != 2 || !o.Executable {
		t.Errorf("%+v", o)
	}
	var s inherited
	if read(kindSocket, &s); s.Kind != UDP || s.At != "192.0.2.1:443" {
		t.Errorf("%+v", s)
	}
	var p prepared
	if read(kindPrepared, &p); p.Version != 1 || p.Build != "1.1" || len(p.Left) != 1 || p.Left[0] != "192.0.2.1:443" {
		t.Errorf("%+v", p)
	}
	var r Refused
	if read(kindRefused, &r); r.Message != "line 3" || r.Code != 422 {
		t.Errorf("%+v", r)
	}
	var d Suspended
	if read(kindServe, &d); d.At != 5000 {
		t.Errorf("%+v", d)
	}
	var served Served
	if read(kindServing, &served); served.Gap != 7*time.Nanosecond || served.Entered != 9 || served.Lost["no_room"] != 1 {
		t.Errorf("%+v", served)
	}
}
