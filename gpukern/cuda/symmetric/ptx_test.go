package symmetric

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/millrace/millrace/gpukern/aead"
	images "github.com/millrace/millrace/gpukern/cuda/symmetric/ptx"
	"github.com/millrace/millrace/gpukern/digest"
)

// TestEveryKernelIsCompiled compares the kernels of the sources with those of the PTX that is embedded, and the sizes of what
// they take with those of what a launch passes.
func TestEveryKernelIsCompiled(t *testing.T) {
	source, entry := regexp.MustCompile(`(?m)^GK_KERNEL\w*\((\w+),`), regexp.MustCompile(`\.visible \.entry (\w+)\(\s*\.param \.align 8 \.b8 \w+\[(\d+)\]`)
	sizes := map[string]uintptr{"sy_expand": reflect.TypeFor[expansion]().Size()}
	files, err := filepath.Glob("*.cu")
	if err != nil || len(files) != 3 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		cu, err := os.ReadFile(file)
		ptx, err2 := images.Files.ReadFile(strings.TrimSuffix(file, ".cu") + ".ptx")
		if err != nil || err2 != nil {
			t.Errorf("%s: %v, %v", file, err, err2)
			continue
		}
		var want, got []string
		for _, m := range source.FindAllSubmatch(cu, -1) {
			want = append(want, string(m[1]))
		}
		for _, m := range entry.FindAllSubmatch(ptx, -1) {
			got = append(got, string(m[1]))
			size := sizes[string(m[1])]
			if size == 0 {
				size = reflect.TypeFor[params]().Size()
			}
			if n, _ := strconv.Atoi(string(m[2])); n != int(size) {
				t.Errorf("%s takes %d bytes, a launch passes %d", m[1], n, size)
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s has %v, its PTX %v", file, want, got)
		}
	}
}

// TestLayouts: kernels read operations and keys by these offsets.
func TestLayouts(t *testing.T) {
	var op aead.Op
	var sum digest.Op
	var image aead.Image
	for name, at := range map[string][2]uintptr{
		"aead.Op":         {unsafe.Sizeof(op), 40},
		"aead.Op.Text":    {unsafe.Offsetof(op.Text), 16},
		"aead.Op.AAD":     {unsafe.Offsetof(op.AAD), 24},
		"aead.Op.AADLen":  {unsafe.Offsetof(op.AADLen), 32},
		"digest.Op":       {unsafe.Sizeof(sum), 24},
		"digest.Op.Sum":   {unsafe.Offsetof(sum.Sum), 8},
		"digest.SumLen":   {unsafe.Offsetof(sum.SumLen), 16},
		"aead.Image.Hash": {unsafe.Offsetof(image.Hash), 16 + 240},
		"aead.Image":      {unsafe.Offsetof(image.ChaCha) + 32, imageSize},
	} {
		if at[0] != at[1] {
			t.Errorf("%s is at %d, kernels have it at %d", name, at[0], at[1])
		}
	}
	if kernelGCM.opSize != int(unsafe.Sizeof(op)) || kernelSHA256.opSize != int(unsafe.Sizeof(sum)) {
		t.Error("sizes of operations")
	}
}
