package program

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/rdma"
)

// compiled runs a C program with the headers of rdma/verbs and returns its output.
func compiled(t *testing.T, header, body string) string {
	t.Helper()
	testnet.Program(t, "cc")
	verbs, err := filepath.Abs("../verbs")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	source := fmt.Sprintf("#include <stddef.h>\n#include <stdio.h>\n#include %q\nint main(void) {\n%s}\n", header, body)
	if err := os.WriteFile(filepath.Join(dir, "main.c"), []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cc", "-std=c11", "-D_GNU_SOURCE", "-I", verbs, "-o", filepath.Join(dir, "main"), filepath.Join(dir, "main.c")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.Command(filepath.Join(dir, "main")).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// inC are the names of fields in C that are not those of Go.
var inC = map[string]string{"errno": "error", "selfDescribed": "unused"}

// snake returns a field's name in C.
func snake(name string) string {
	if c, ok := inC[name]; ok {
		return c
	}
	name = strings.ReplaceAll(strings.ReplaceAll(strings.ReplaceAll(name, "PSN", "Psn"), "CQ", "Cq"), "QPs", "Qps")
	name = strings.ReplaceAll(strings.ReplaceAll(strings.ReplaceAll(name, "QP", "Qp"), "MTU", "Mtu"), "RNR", "Rnr")
	var b strings.Builder
	for _, r := range name {
		if r >= 'A' && r <= 'Z' {
			b.WriteByte('_')
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}

// TestLayouts compares what both sides exchange in Go with the library's header.
func TestLayouts(t *testing.T) {
	var body, want strings.Builder
	for _, v := range []any{
		request{}, reply{}, element{}, list{}, send{}, recv{}, completion{}, event{}, cmRequest{}, cmReply{}, connection{}, endpoint{},
	} {
		s := reflect.TypeOf(v)
		fmt.Fprintf(&body, "printf(\"%s %%zu\\n\", sizeof(struct %s));\n", s.Name(), snake(s.Name()))
		fmt.Fprintf(&want, "%s %d\n", s.Name(), s.Size())
		for i := range s.NumField() {
			f := s.Field(i)
			fmt.Fprintf(&body, "printf(\"%s.%s %%zu\\n\", offsetof(struct %s, %s));\n", s.Name(), f.Name, snake(s.Name()), snake(f.Name))
			fmt.Fprintf(&want, "%s.%s %d\n", s.Name(), f.Name, f.Offset)
		}
	}
	for name, v := range map[string]int{
		"CHANNEL_VERSION": Version, "OP_HELLO": int(opHello), "OP_DEALLOC_MW": int(opDeallocMW), "SEND_OP_LOCAL_INV": int(rdma.OpLocalInv), "SUBMIT_SHARED": submitShared, "LIST_ELEMENTS": listElements,
		"SEND_ELEMENTS": sendElements, "RECV_ELEMENTS": recvElements, "MAX_INLINE": stagingSize / submissionSlots, "STAGING_UNIT": stagingUnit,
		"COMPLETION_RECV": completionRecv, "EVENT_OVERRUN": eventCQError, "OP_CM_CREATE_CHANNEL": int(cmCreateChannel), "OP_CM_ATTR": int(cmAttr), "CM_PRIVATE": cmPrivate,
	} {
		fmt.Fprintf(&body, "printf(\"%s %%d\\n\", (int)%s);\n", name, name)
		fmt.Fprintf(&want, "%s %d\n", name, v)
	}
	if got := compiled(t, "channel.h", body.String()); got != want.String() {
		t.Errorf("C has\n%s\nand Go\n%s", got, &want)
	}
}

// TestABI compares the structures that programs share with the library with those that programs were compiled for.
func TestABI(t *testing.T) {
	for source, header := range map[string]string{"abi.txt": "abi.h", "rdmacm-abi.txt": "../rdmacm/abi.h"} {
		t.Run(source, func(t *testing.T) { compareABI(t, source, header) })
	}
}

func compareABI(t *testing.T, source, header string) {
	text, err := os.ReadFile("testdata/" + source)
	if err != nil {
		t.Fatal(err)
	}
	var body, want strings.Builder
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if f[0] == "#" {
			continue
		}
		name := "struct " + f[0]
		if f[1] != "-" {
			fmt.Fprintf(&body, "printf(\"%s %%zu\\n\", sizeof(%s));\n", name, name)
			fmt.Fprintf(&want, "%s %s\n", name, f[1])
		}
		for ; len(f) > 3; f = f[2:] {
			fmt.Fprintf(&body, "printf(\"%s.%s %%zu\\n\", offsetof(%s, %s));\n", name, f[2], name, f[2])
			fmt.Fprintf(&want, "%s.%s %s\n", name, f[2], f[3])
		}
	}
	if got := compiled(t, header, body.String()); got != want.String() {
		t.Errorf("the library has\n%s\nand programs\n%s", got, &want)
	}
}
