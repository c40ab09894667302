package inspection

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/packet"
)

const datasetRules = `drop udp any any -> any any (msg:"source"; ip.src; dataset:isset,sources,type ip,load lists/sources; content:!"zz"; sid:1;)
drop dns any any -> any any (msg:"name"; dns.query; dataset:isset,names,type string,load lists/names; sid:2;)
`

// query is a DNS query for a.test, or another name of one letter.
func query(name string) string {
	return "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01" + name + "\x04test\x00\x00\x01\x00\x01"
}

// withDatasets returns an inspector of datasetRules, whose files of values lie in a folder beside the file of rules.
func withDatasets(t *testing.T) (i *Inspector, dir string) {
	t.Helper()
	i, dir = opened(t, "", "drop from 192.0.2.9\n", "alerts.json")
	t.Cleanup(func() { _ = i.Close() })
	if err := os.Mkdir(filepath.Join(dir, "lists"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, dir+"/lists/sources", "# none of ours\n198.18.9.9\n2001:db8::9\n")
	write(t, dir+"/lists/names", "YS50ZXN0\n") // a.test
	write(t, dir+"/a.rules", datasetRules)
	if err := i.Reload(parsed(t, dir, "alerts.json")); err != nil {
		t.Fatal(err)
	}
	return i, dir
}

// Rules of a policy load the files of datasets that they name, from beside their own file. A reload reads these anew, also where
// the rules are as they were.
func TestDatasetsOfAPolicyComeFromFiles(t *testing.T) {
	i, dir := withDatasets(t)
	port := uint16(1000)
	wants := func(when, name string, want packet.Verdict) {
		t.Helper()
		port++
		if v := inspect1(i.Loop(0), 1, port, query(name)); v != want {
			t.Errorf("%s: a query for %s.test: %v, want %v", when, name, v, want)
		}
	}
	wants("at first", "a", packet.DropInspection)
	wants("at first", "b", packet.Forward)
	write(t, dir+"/lists/names", "Yi50ZXN0") // b.test
	if err := i.Reload(parsed(t, dir, "alerts.json")); err != nil {
		t.Fatal(err)
	}
	wants("after the list of names changed", "a", packet.Forward)
	wants("after the list of names changed", "b", packet.DropInspection)
	write(t, dir+"/lists/sources", "::ffff:192.0.2.1\n")
	if err := i.Reload(parsed(t, dir, "alerts.json")); err != nil {
		t.Fatal(err)
	}
	wants("after the list of sources changed", "a", packet.DropInspection)
	write(t, dir+"/a.rules", strings.ReplaceAll(datasetRules, "load lists/", "load "+dir+"/lists/"))
	if err := i.Reload(parsed(t, dir, "alerts.json")); err != nil {
		t.Fatal(err)
	}
	wants("by an absolute path", "c", packet.DropInspection)
}

// A file of values that is missing or wrong is an error at its rule, which names the file and the line; the values that were
// loaded stay.
func TestWrongDatasetsAreErrorsOfTheirRules(t *testing.T) {
	for text, want := range map[string]string{
		"YS50ZXN0\n\n!!\n": `lists/names: line 3: "!!" is not base64`,
		"":                 "lists/names: no such file or directory",
	} {
		i, dir := withDatasets(t)
		if write(t, dir+"/lists/names", text); text == "" {
			if err := os.Remove(dir + "/lists/names"); err != nil {
				t.Fatal(err)
			}
		}
		var ce *config.Error
		if err := i.Reload(parsed(t, dir, "alerts.json")); !errors.As(err, &ce) || len(ce.Problems) != 1 {
			t.Fatalf("%q: %v", text, err)
		}
		if p := ce.Problems[0]; !strings.Contains(p.Message, want) || p.Line != 2 || p.File != dir+"/a.rules" || !strings.HasPrefix(p.Source[p.Column-1:], "isset,names") {
			t.Errorf("%+v, want %s", p, want)
		}
		if v := inspect1(i.Loop(0), 1, 1000, query("a")); v != packet.DropInspection {
			t.Errorf("after the reload failed: %v", v)
		}
	}
}
