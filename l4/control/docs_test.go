package control

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/packet"
)

// reference is the pages that list keys and metrics.
func reference(t *testing.T) string {
	t.Helper()
	var text string
	for _, file := range []string{"../../docs/gateway-metrics.md", "../../docs/http-gateway.md"} {
		page, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text += string(page)
	}
	return text
}

// rows returns the first two cells of the rows of the page whose first matches.
func rows(page, first string) (names []string, second map[string]string) {
	second = map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `("+first+")` \\| ([^|]*) \\|").FindAllStringSubmatch(page, -1) {
		names, second[m[1]] = append(names, m[1]), strings.Trim(m[2], " `")
	}
	slices.Sort(names)
	return names, second
}

// The names of metrics are literals, so the sources tell all of them.
func TestTheReferenceHasEveryMetric(t *testing.T) {
	var files []string
	for _, dir := range []string{".", "../inspection", "../rolelink", "../../l7/control", "../../gateway/bgp", "../../gateway/daemon", "../../gateway/defence", "../../node", "../../metrics"} {
		list, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, list...)
	}
	name := regexp.MustCompile(`(?m)(?:^\s*w\.|metrics\.)(Counter|Gauge|Histogram)(?:\(|Kind, )"(millrace_[a-z0-9_]+)"|^\s*\{"(millrace_[a-z0-9_]+)", "`)
	want := map[string]string{}
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, m := range name.FindAllStringSubmatch(string(src), -1) {
			if m[3] != "" { // the table of writeQueue
				m[1], m[2] = "counter", m[3]
			}
			want[m[2]] = strings.ToLower(m[1])
		}
	}
	_, got := rows(reference(t), `millrace_[a-z0-9_]+`)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("docs/gateway-metrics.md lists other metrics than the code has: %s", diff)
	}
}

func TestTheReferenceHasEveryReason(t *testing.T) {
	page := reference(t)
	for v := packet.Drop; int(v) < packet.Verdicts; v++ {
		row := regexp.MustCompile("(?m)^\\| [a-z0-9_`, ]*`" + v.String() + "`[a-z0-9_`, ]* \\| [^`]") // the second cell of a key is its default
		possible := slices.Contains(datapath.DropReasons, v) || v == packet.DropTxFull || v == packet.DropLinkDown || v == packet.DropHandover
		if row.MatchString(page) != possible {
			t.Errorf("reason %s: in docs/gateway-metrics.md %v, possible %v", v, !possible, possible)
		}
	}
}
