package wire

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// called are the methods of views that work on more than a field; all others must be inlined into
// their callers.
var called = map[string]bool{
	"ARP.ReplyFrom":   true,
	"IPv4.ChecksumOK": true, "IPv4.FillChecksum": true, "IPv4.Pseudo": true, "IPv4.sumHeader": true, "IPv4.MarkCE": true,
	"IPv6.Pseudo":    true,
	"UDP.ChecksumOK": true, "UDP.FillChecksum": true,
	"TCP.ChecksumOK": true, "TCP.FillChecksum": true, "TCP.ParseOptions": true,
	"ICMP.ChecksumOK": true, "ICMP.FillChecksum": true,
	"ICMPv6.ChecksumOK": true, "ICMPv6.FillChecksum": true,
	"GRE.ChecksumOK": true, "GRE.FillChecksum": true,
	"NeighborSolicit.SourceMAC": true, "NeighborAdvert.TargetMAC": true,
	"RouterSolicit.SourceMAC": true, "RouterAdvert.SourceMAC": true,
}

// also are functions that are no methods of views and must be inlined.
var also = []string{
	"Fold", "Update16", "Update32", "Diff32", "AddDiff", "Apply", "UDPChecksum", "PseudoHeader4", "Version",
	"IsTag", "MAC.Multicast", "TCPFlags.Has", "TCPFlags.Any", "ExtHeaders", "OptionsOf", "NDOptionsOf",
	"(*OptionIter).Kind", "(*OptionIter).Data", "(*NDOptionIter).Next", "(*NDOptionIter).Data",
	"(*GeneveOptionIter).Next", "Fragment6.First", "SolicitedNode", "MulticastMAC6",
	"AppendEthernet", "AppendVLAN", "AppendARP", "AppendUDP", "AppendICMP", "AppendMSS",
}

func TestAccessorsAreInlined(t *testing.T) {
	gobin := filepath.Join(os.Getenv("GOROOT"), "bin", "go")
	if _, err := os.Stat(gobin); err != nil {
		if gobin, err = exec.LookPath("go"); err != nil {
			t.Skip("no go command to compile with: ", err)
		}
	}
	out, err := exec.Command(gobin, "build", "-gcflags=-m", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	inlined := map[string]bool{}
	for _, m := range regexp.MustCompile(`can inline (\S+)`).FindAllStringSubmatch(string(out), -1) {
		inlined[m[1]] = true
	}
	methods := viewMethods(t)
	if len(methods) < 150 {
		t.Fatalf("only %d methods of views found", len(methods))
	}
	for _, name := range append(methods, also...) {
		if !inlined[name] && !called[name] {
			t.Errorf("%s is not inlined", name)
		}
		if inlined[name] && called[name] {
			t.Errorf("%s is inlined by now: take it off the list", name)
		}
	}
}

// viewMethods returns the methods of all types that are []byte, as "Type.Method".
func viewMethods(t *testing.T) (names []string) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	views := map[string]bool{}
	var funcs []*ast.FuncDecl
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				funcs = append(funcs, d)
			case *ast.GenDecl:
				collectViews(d, views)
			}
		}
	}
	for _, d := range funcs {
		if d.Recv == nil {
			continue
		}
		if recv, ok := d.Recv.List[0].Type.(*ast.Ident); ok && views[recv.Name] {
			names = append(names, recv.Name+"."+d.Name.Name)
		}
	}
	return names
}

func collectViews(d *ast.GenDecl, views map[string]bool) {
	for _, s := range d.Specs {
		ts, ok := s.(*ast.TypeSpec)
		if !ok {
			continue
		}
		if at, ok := ts.Type.(*ast.ArrayType); ok && at.Len == nil {
			views[ts.Name.Name] = true
		}
	}
}
