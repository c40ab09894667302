package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/millrace/millrace/docs"
)

func newMan(c *console) *cobra.Command {
	var dir string
	var section int
	cmd := &cobra.Command{
		Use:   "man",
		Short: "Write the manual pages",
		Long: `Write manual pages into a folder: one for each command, in section 1, and one for
each configuration file, in section 5.`,
		Example: `  millrace man --section 1 --dir /usr/local/share/man/man1
  millrace man --section 5 --dir /usr/local/share/man/man5
  millrace man --dir . && man -l millrace-replay.1`,
		Args: cobra.NoArgs,
	}
	cmd.RunE = command(func(context.Context, []string) error {
		if section != 0 && section != 1 && section != 5 {
			return usage("--section %d: say 1, 5, or 0 for both", section)
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("manual pages: %w", err)
		}
		if section != 5 {
			if err := writeCommandPages(cmd.Root(), dir); err != nil {
				return fmt.Errorf("manual pages: %w", err)
			}
		}
		if section != 1 {
			if err := writeConfigPages(dir); err != nil {
				return fmt.Errorf("manual pages: %w", err)
			}
		}
		c.printf("manual pages are in %s\n", dir)
		return nil
	})
	cmd.Flags().IntVar(&section, "section", 0, "only pages of this section, 1 or 5 (0: both)")
	cmd.Flags().StringVar(&dir, "dir", ".", "folder to write to, made when it is missing")
	return cmd
}

// writeCommandPages writes the manual pages of the commands, section 1.
func writeCommandPages(root *cobra.Command, dir string) error {
	root.DisableAutoGenTag = true // the same source gives the same pages
	head := &doc.GenManHeader{Section: "1", Source: "millrace " + thisBuild().Version, Manual: "Millrace"}
	if err := doc.GenManTree(root, head, dir); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "millrace-waf.1"), []byte(firewallPage()), 0o644)
}

// firewallPage returns the manual page of the program with a web application firewall. Its commands are those of millrace, whose pages
// are not repeated.
func firewallPage() string {
	var p roff
	p.linef(`.TH "MILLRACE-WAF" "1" "" "millrace %s" "Millrace"`, thisBuild().Version)
	p.section("NAME")
	p.text("millrace-waf - millrace with a web application firewall")
	p.section("SYNOPSIS")
	p.bold("millrace-waf [command]")
	p.section("DESCRIPTION")
	p.text("This program has all commands of `millrace`(1). Beside them it evaluates the key `waf` of listeners and routes: rules in ModSecurity's " +
		"language, by Coraza, with OWASP's Core Rule Set embedded (`rules: [crs]`). `millrace` refuses the key, since it has no engine for it. " +
		"`millrace-waf version` names engine and rules.")
	p.line(".PP")
	p.text("Each program controls a gateway of the other: both have the same control socket. Replace one by the other as any version by another: " +
		"`gateway upgrade`. The package millrace-waf has the service run this program.")
	p.section("FILES")
	p.line(".TP")
	p.bold("/lib/systemd/system/millrace-gateway.service.d/waf.conf")
	p.text("has the service run this program in place of millrace.")
	p.section("EXAMPLE")
	p.line(".nf")
	p.text("listeners:")
	p.text("- {name: web, address: 192.0.2.1:80, protocol: HTTP, waf: {rules: [crs], mode: prevent}}")
	p.line(".fi")
	p.section("SEE ALSO")
	p.text("`millrace`(1), `millrace-gateway`(1), `millrace-gateway.yaml`(5)")
	return p.String()
}

// writeConfigPages writes the manual pages of the configuration files, section 5, into a folder.
func writeConfigPages(dir string) error {
	for i := range configFiles {
		f := &configFiles[i]
		page, err := f.manual()
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, f.pageName()+".5"), []byte(page), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (f *configFile) pageName() string { return "millrace-" + f.command + ".yaml" }

// manual returns the page: keys and types of the decoder, defaults and meanings of the reference page.
func (f *configFile) manual() (string, error) {
	rows, err := docs.Keys(f.command)
	if err != nil {
		return "", err
	}
	var p roff
	p.linef(`.TH "%s" "5" "" "millrace %s" "Millrace"`, strings.ToUpper(f.pageName()), thisBuild().Version)
	p.section("NAME")
	p.text(f.pageName() + " - configuration of millrace " + f.command)
	p.section("DESCRIPTION")
	p.text("The file is YAML. Unknown keys and values of the wrong type are errors; `" + f.check +
		"` reports all of them. Durations have a unit, such as 500ms, 30s or 2h.")
	p.line(".PP")
	p.text("Anchors, aliases and merge keys (`<<`) may be used. Top-level keys that begin with `x-` are ignored: they can hold anchors. `millrace " +
		f.command + " schema` prints the JSON Schema of the file.")
	p.section("KEYS")
	for _, k := range f.schema().Keys() {
		row := reference(rows, k.Path)
		p.line(".TP")
		p.bold(k.Path)
		p.text(keyLine(k.Schema.Form(), row.Default))
		if row.Meaning != "" {
			p.line(".br")
			p.text(row.Meaning)
		}
	}
	p.section("EXAMPLE")
	p.line(".nf")
	for line := range strings.Lines(f.example) {
		p.text(strings.TrimSuffix(line, "\n"))
	}
	p.line(".fi")
	p.section("SEE ALSO")
	p.text(fmt.Sprintf("`millrace-%s`(1)", f.command))
	return p.String(), nil
}

// keyLine writes the type of a key and its default.
func keyLine(form, byDefault string) string {
	switch byDefault {
	case "required", "":
		return form + "; required."
	case "none":
		return form + "; no default."
	}
	return form + "; default " + byDefault + "."
}

// roff builds a manual page for man(7).
type roff struct{ strings.Builder }

func (p *roff) line(s string)                    { p.WriteString(s + "\n") }
func (p *roff) linef(format string, args ...any) { p.line(fmt.Sprintf(format, args...)) }
func (p *roff) section(name string)              { p.line(".SH " + name) }
func (p *roff) bold(s string)                    { p.line(".B " + escapeRoff(s)) }

// text writes a line of text. Words between backquotes are bold.
func (p *roff) text(markdown string) {
	parts := strings.Split(escapeRoff(markdown), "`")
	for i := 1; i < len(parts); i += 2 {
		parts[i] = `\fB` + parts[i] + `\fR`
	}
	p.line(strings.Join(parts, ""))
}

// escapeRoff protects characters that roff interprets: the escape, minus signs, and control lines.
func escapeRoff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}
