package pubkey

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	images "github.com/millrace/millrace/gpukern/cuda/pubkey/ptx"
)

// TestEveryKernelIsCompiled compares the kernels of the sources with those of the PTX that is embedded.
func TestEveryKernelIsCompiled(t *testing.T) {
	source, entry := regexp.MustCompile(`(?m)^GK_KERNEL\w*\((\w+),`), regexp.MustCompile(`\.visible \.entry (\w+)\(`)
	files, err := filepath.Glob("*.cu")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		cu, err := os.ReadFile(file)
		ptx, err2 := images.Files.ReadFile(strings.TrimSuffix(file, ".cu") + ".ptx")
		if err != nil || err2 != nil {
			t.Errorf("%s: %v, %v", file, err, err2)
			continue
		}
		names := func(r *regexp.Regexp, text []byte) (all []string) {
			for _, m := range r.FindAllSubmatch(text, -1) {
				all = append(all, string(m[1]))
			}
			return all
		}
		if want, got := names(source, cu), names(entry, ptx); !reflect.DeepEqual(got, want) {
			t.Errorf("%s has %v, its PTX %v", file, want, got)
		}
	}
}

// TestNoThreadsShareMemory: no kernel has shared memory or a barrier of a block, so that threads cannot race in it.
func TestNoThreadsShareMemory(t *testing.T) {
	files, err := fs.Glob(images.Files, "*.ptx")
	if err != nil || len(files) < 6 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, name := range files {
		ptx, err := images.Files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range []string{".shared", "bar.sync", "bar.red", "bar.arrive", "barrier.", "shfl."} {
			if bytes.Contains(ptx, []byte(word)) {
				t.Errorf("%s has %q: its threads are not alone", name, word)
			}
		}
	}
}

// TestParametersAreThoseOfTheKernels compares the sizes of what a launch passes with what the kernels take.
func TestParametersAreThoseOfTheKernels(t *testing.T) {
	for file, p := range map[string]any{
		"x25519": x25519Params{}, // of ed25519_sign each kernel has its own
		"ecdsa":  ecdsaParams{}, "rsa": rsaParams{}, "ed25519": ed25519Params{}, "mlkem": mlkemParams{},
	} {
		ptx, err := images.Files.ReadFile(file + ".ptx")
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\.param \.align 8 \.b8 pk_\w+_param_0\[(\d+)\]`).FindAllSubmatch(ptx, -1) {
			if n, _ := strconv.Atoi(string(m[1])); n != int(reflect.TypeOf(p).Size()) {
				t.Errorf("%s: a kernel takes %d bytes, a launch passes %d", file, n, reflect.TypeOf(p).Size())
			}
		}
	}
}
