package inspection

import (
	"slices"
	"testing"
)

// The names of fields are found in the contents of rules on headers, whatever stands around them.
func TestFieldNamesOfRules(t *testing.T) {
	i, _ := openedForRequests(t, `drop http any any -> any any (http.header; content:"X-Probe|3a 20|1"; sid:1;)
drop http any any -> any any (http.header.raw; content:"|0d 0a|X-First|3a|a|0d 0a|X-Second|3a|"; nocase; sid:2;)
drop http any any -> any any (http.header_names; content:"|0d 0a|X-Listed|0d 0a|"; sid:3;)
drop http any any -> any any (http.uri; content:"X-Uri|3a|"; sid:4;)
drop http any any -> any any (http.header; content:"-|3a|"; content:"Host|3a|"; content:"no-colon"; sid:5;)
`, Options{}, nil)
	defer i.Close()
	if got, want := i.FieldNames(i.cfg.Inspection.Policies[0].Name), []string{"x-first", "x-listed", "x-probe", "x-second"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := i.FieldNames("none"); got != nil {
		t.Errorf("%q of no policy", got)
	}
}
