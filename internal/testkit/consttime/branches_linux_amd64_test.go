package consttime

import "testing"

const here = "github.com/millrace/millrace/internal/testkit/consttime.equal"

func TestBranches(t *testing.T) { Branches(t, "equalAlways", 3, []string{here}, nil, nil) }

// TestBranchesThatDiffer are found, unless they are said to be public.
func TestBranchesThatDiffer(t *testing.T) {
	for name, c := range map[string]struct {
		within, public []string
		steps, differ  bool
	}{
		"secret":     {[]string{here}, nil, true, true},
		"public":     {[]string{here}, []string{".equal"}, false, false},
		"other code": {[]string{"encoding/"}, nil, false, false},
	} {
		steps, difference, err := compare("equal", 3, &codeFilter{within: c.within, public: c.public})
		if err != nil {
			t.Skip(err)
		}
		if steps > 0 != c.steps || difference != "" != c.differ {
			t.Errorf("%s: %d steps, %q", name, steps, difference)
		}
	}
	// A function that is run at once has one step.
	steps, difference, err := compare("equal", 3, &codeFilter{within: []string{here}, straight: []string{".equal"}})
	if steps != 1 || difference != "" || err != nil {
		t.Errorf("at once: %d steps, %q, %v", steps, difference, err)
	}
	if _, _, err := compare("no such", 2, &codeFilter{}); err == nil {
		t.Error("a subject that is not there is traced")
	}
}
