package stackd

import (
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/internal/regfile"
	"github.com/millrace/millrace/internal/strictyaml"
)

// Load reads and checks a configuration file. Errors in it are a *ConfigError.
func Load(path string) (*Config, error) {
	f, err := regfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Read(path, f)
}

// Read is Load of an open file; name is its name in messages.
func Read(name string, r io.Reader) (*Config, error) {
	src, err := io.ReadAll(io.LimitReader(r, maxFileBytes+1))
	if err != nil {
		return nil, err
	}
	return Parse(name, src)
}

// Parse checks the configuration in src; file names it in messages. All errors are reported at once, as a
// *ConfigError.
func Parse(file string, src []byte) (*Config, error) {
	d := &decoder{Decoder: strictyaml.New(file, src)}
	d.Example, d.ShowAll = "examples/stack.yaml", "millrace stack up --check --json"
	c := New()
	if len(src) > maxFileBytes {
		d.FailAt(1, 1, "", fmt.Sprintf("the file is larger than %d bytes", maxFileBytes))
	} else if root := d.Document(src); root != nil {
		d.config(root, c)
		c.check(&d.at, d.Fail)
	}
	return c, d.Err()
}

// Schema returns the JSON Schema of a configuration file.
func Schema() *strictyaml.Schema {
	s := strictyaml.Describe(func(sd *strictyaml.Decoder, n *yaml.Node) {
		d := &decoder{Decoder: sd}
		d.config(n, New())
	})
	s.Title = "Configuration of millrace stack"
	return s
}

// decoder reads a configuration and keeps the places of what is compared with other parts of it.
type decoder struct {
	*strictyaml.Decoder
	at places
}

// text reads a string.
func (d *decoder) text(n *yaml.Node, what string, to *string) {
	s := strictyaml.Schema{Type: "string", Title: "text"}
	if *to != "" {
		s.Default = *to
	}
	if d.Takes(s) {
		return
	}
	if n.Kind != yaml.ScalarNode || n.Tag != "!!str" {
		d.Fail(n, "", "%s must be a string, not %s", what, strictyaml.Kind(n))
		return
	}
	*to = n.Value
}

// truth reads true or false.
func (d *decoder) truth(n *yaml.Node, what string, to *bool) {
	if d.Takes(strictyaml.Schema{Type: "boolean", Default: *to}) {
		return
	}
	v, err := strconv.ParseBool(n.Value)
	if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" || err != nil {
		d.Fail(n, "", "%s must be true or false, not %s", what, strictyaml.Kind(n))
		return
	}
	*to = v
}

// units are the units of byte counts.
var units = map[string]int64{"": 1, "k": 1 << 10, "M": 1 << 20, "G": 1 << 30}

var bytesForm = regexp.MustCompile(`^([0-9]{1,12})([kMG]?)$`)

// bytes reads a number of bytes such as 65536 or 4M, or the word auto, which is 0.
func (d *decoder) bytes(n *yaml.Node, what string, to *int64, least, most int64) {
	if d.Word(n, "auto") {
		*to = 0
		return
	}
	if d.Takes(strictyaml.Schema{Type: "integer", Minimum: &least, Maximum: &most}, strictyaml.Schema{Type: "string", Title: "bytes with k, M or G", Pattern: bytesForm.String()}) {
		return
	}
	m := bytesForm.FindStringSubmatch(strings.ReplaceAll(n.Value, "_", ""))
	if n.Kind != yaml.ScalarNode || m == nil {
		d.Fail(n, "auto, or such as 65536, 512k or 4M", "%s must be a number of bytes, not %s", what, strictyaml.Kind(n))
		return
	}
	v, _ := strconv.ParseInt(m[1], 10, 64)
	if v > most || v*units[m[2]] < least || v*units[m[2]] > most {
		d.Fail(n, "", "%s is %s; it must lie between %d and %d bytes", what, n.Value, least, most)
		return
	}
	*to = v * units[m[2]]
}

// addr reads an address without a zone.
func (d *decoder) addr(n *yaml.Node, what string, to *netip.Addr) {
	if d.Takes(strictyaml.Schema{Type: "string", Title: "IP address"}) {
		return
	}
	a, err := netip.ParseAddr(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil || a.Zone() != "" || a.Is4In6() {
		d.Fail(n, "such as 198.18.0.1 or \"2001:db8::1\"", "%s must be an IP address, not %s", what, strictyaml.Kind(n))
		return
	}
	*to = a
}
