package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// newFilter is the command of what stands apart from a gateway: rules, and what they find.
func newFilter(c *console) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "filter",
		Short: "Check inspection rules",
		Long: `Inspection rules are those of Suricata's language. check reads them and reports
what is wrong and what is not supported.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage("filter has no command %q", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newFilterCheck(c))
	return cmd
}

// count says how many, with the right form of the noun.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
