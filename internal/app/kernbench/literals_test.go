package kernbench

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/millrace/millrace/gpukern/literal"
)

func TestLiteralsAreAsRulesHaveThem(t *testing.T) {
	texts := Noise(3, 1000, 100000)
	set := Literals(1, 2000, texts)
	if again := Literals(1, 2000, texts); !slices.EqualFunc(set, again, same) {
		t.Error("one seed makes two sets")
	}
	seen := map[string]bool{}
	short, noCase, cut := 0, 0, 0
	all := bytes.Join(texts, nil)
	for i, p := range set {
		if key := string(bytes.ToLower(p.Bytes)); seen[key] || p.Rule != uint32(i+1) {
			t.Fatalf("pattern %d, %q of rule %d: twice, or of another rule", i, p.Bytes, p.Rule)
		} else {
			seen[key] = true
		}
		if len(p.Bytes) < 8 {
			short++
		}
		if p.NoCase {
			noCase++
		}
		if len(p.Bytes) > 4 && bytes.Contains(all, p.Bytes) {
			cut++
		}
	}
	if short < 100 || short > 300 || noCase < 500 || noCase > 900 || cut < 50 || cut > 150 {
		t.Errorf("of 2000 are %d short, %d without case, %d from texts", short, noCase, cut)
	}
	if _, err := literal.Compile(set); err != nil {
		t.Error(err)
	}
}

func same(a, b literal.Pattern) bool {
	return bytes.Equal(a.Bytes, b.Bytes) && a.NoCase == b.NoCase && a.Rule == b.Rule
}

func TestNearMissesHardlyMatch(t *testing.T) {
	patterns := Literals(3, 2000, nil)
	set, err := literal.Compile(patterns)
	if err != nil {
		t.Fatal(err)
	}
	bytes, matches := 0, 0
	for _, text := range NearMisses(4, patterns, 1000, 200_000) {
		bytes += len(text)
		matches += len(set.Scan(nil, text, 1<<20, nil))
	}
	if each := bytes / max(matches, 1); bytes != 200_000 || each < 1000 || each > 10_000 {
		t.Errorf("%d bytes, one match in %d", bytes, each)
	}
}

func TestLiteralFilesReadBack(t *testing.T) {
	p, x := filepath.Join(t.TempDir(), "p"), filepath.Join(t.TempDir(), "x")
	set := Literals(2, 50, nil)
	texts := NearMisses(2, set, 100, 1050)
	if err := WriteLiterals(p, x, set, texts, 77); err != nil {
		t.Fatal(err)
	}
	gotSet, gotTexts, n, err := ReadLiterals(p, x)
	if err != nil || n != 77 || !slices.EqualFunc(gotSet, set, same) || !slices.EqualFunc(gotTexts, texts, bytes.Equal) {
		t.Errorf("%d patterns, %d texts, %d matches, %v", len(gotSet), len(gotTexts), n, err)
	}
	for _, path := range []string{p, x} {
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, whole[:len(whole)-1], 0o666); err != nil {
			t.Fatal(err)
		}
		if _, _, _, err := ReadLiterals(p, x); err == nil {
			t.Errorf("%s: a cut file is read", path)
		}
		if err := os.WriteFile(path, whole, 0o666); err != nil {
			t.Fatal(err)
		}
	}
}
