package inspection

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/gateway/config"
)

// Errors that are found when files are read have the place in the configuration of the name or value.
func TestErrorsOfReadingHaveTheirPlaceInTheConfiguration(t *testing.T) {
	const text = `devices: [{name: eth1}]
snat: [198.18.0.9]
services: [{name: a, address: 198.18.0.1:80, protocol: tcp, backends: [{address: 198.18.1.1:80}]}]
inspection:
  variables: ["nonsense"]
  variables_file: none.yaml
  classification: none.config
  alerts: {file: alerts.json}
  packets: {file: alerts.pcap}
  policies:
    - name: p
      rules: [none.rules]
      access: [none.access]
      capture: "tpc port 80"
`
	file := filepath.Join(t.TempDir(), "gw.yaml")
	c, err := config.Parse(file, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var ce *config.Error
	if err := Check(c); !errors.As(err, &ce) {
		t.Fatalf("error %v", err)
	}
	want := map[int]string{5: "nonsense", 6: "none.yaml", 7: "none.config", 12: "none.rules", 13: "none.access", 14: `"tpc`}
	for _, p := range ce.Problems {
		source := strings.Split(text, "\n")[max(p.Line-1, 0)]
		if value := want[p.Line]; value == "" || p.File != file || p.Source != source || !strings.HasPrefix(strings.TrimLeft(source[max(p.Column-1, 0):], `"`), strings.TrimLeft(value, `"`)) {
			t.Errorf("%s:%d:%d: %s (%q)", p.File, p.Line, p.Column, p.Message, p.Source)
		}
		delete(want, p.Line)
	}
	if len(want) > 0 {
		t.Errorf("no error for %v", want)
	}
}
