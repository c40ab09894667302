package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/app/convert"
)

const convertLong = `Translate the configuration of nginx, HAProxy or Caddy to a file of the gateway, which
is printed or written to --output. Comments in it name the lines of the source. Files
that the source includes are read; names in it are relative to its folder.

The report, on standard error, has a line for each directive: translated; translated
with a difference, which it names; left out, with the reason and what to do; or not
needed. Without --all it shows those with a difference and those that are left out. What
may keep clients out and cannot be translated closes its place: clients get 403 there.
docs/moving-in.md has what is translated, and what to look at before the change.

Exit code 0 where nothing is left out, 5 otherwise: the file is valid and lacks what the
report names. With --strict also a difference is 5, and nothing is printed or written.
Errors of the source are printed with line and column, all at once, with exit code 3.

--json prints one object: schema, source, language, translated, changed, left,
unneeded, closed, lines (list of file, line, column, directive, result, keys, reason,
remedy, closed), and config, the file, without --output.`

// convertFlags are the flags of gateway convert.
type convertFlags struct {
	from, output      string
	json, strict, all bool
}

func newGatewayConvert(c *console) *cobra.Command {
	var f convertFlags
	cmd := &cobra.Command{
		Use:   "convert FILE",
		Short: "Translate a configuration of nginx, HAProxy or Caddy",
		Long:  convertLong,
		Example: `  millrace gateway convert /etc/nginx/nginx.conf -o gateway.yaml
  millrace gateway convert haproxy.cfg | millrace gateway check -c -
  millrace gateway convert Caddyfile --json | jq -r '.lines[] | select(.result == "left")'`,
		Args: exactly("FILE"),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveDefault
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.from, "from", "", "language: nginx, haproxy or caddyfile (default: by name and text)")
	fl.StringVarP(&f.output, "output", "o", "", "file to write; an existing one is not replaced")
	fl.BoolVar(&f.json, "json", false, "print the report as JSON")
	fl.BoolVar(&f.strict, "strict", false, "write nothing unless all is translated without a difference")
	fl.BoolVar(&f.all, "all", false, "report every directive")
	var words []string
	for _, l := range convert.Languages {
		words = append(words, string(l))
	}
	completeWords(cmd, "from", words...)
	completeFiles(cmd, "output", "yaml", "yml")
	cmd.RunE = command(func(_ context.Context, args []string) error {
		if f.from != "" && !slices.Contains(words, f.from) {
			return usage("no language %q; say %s", f.from, strings.Join(words, ", "))
		}
		return runConvert(c, args[0], &f)
	})
	return cmd
}

// runConvert translates a file, and prints the result and the report.
func runConvert(c *console, file string, f *convertFlags) error {
	r, err := translate(c, file, convert.Language(f.from))
	var bad *convert.OutputError
	if err != nil && r != nil && r.Left > 0 { // why nothing is left to listen on
		_, _ = io.WriteString(c.err, r.Text(f.all))
	}
	switch {
	case errors.As(err, &bad):
		return fmt.Errorf("%w\nplease report this with the source: the converter has to leave out what it cannot express", err)
	case err != nil:
		return configured(err, file)
	}
	refused := f.strict && r.Left+r.Changed > 0
	text := r.Config
	if f.output != "" || refused {
		r.Config = ""
	}
	if f.output != "" && !refused {
		if err := writeNew(f.output, text); err != nil {
			return err
		}
	}
	switch {
	case f.json:
		err = c.json(r)
	default:
		if f.output == "" && !refused {
			c.printf("%s", text)
		}
		_, err = io.WriteString(c.err, r.Text(f.all))
	}
	if refused || r.Left > 0 {
		return errors.Join(err, coded{errShown, errLeft})
	}
	return err
}

// translate reads a file, or the standard input.
func translate(c *console, file string, from convert.Language) (*convert.Report, error) {
	if file != standardInput {
		return convert.File(file, from)
	}
	text, err := io.ReadAll(io.LimitReader(c.in, convert.MaxBytes+1))
	if err != nil {
		return nil, err
	}
	return convert.Text(standardInput, string(text), from)
}

// writeNew writes a file that is not there yet: an operator may have changed an earlier result.
func writeNew(path, text string) error {
	w, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, text)
	return errors.Join(err, w.Close())
}
