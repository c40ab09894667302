package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// helpOf returns the help of a command, which shows what is typed before what it means: usage, examples, commands and flags
// stand above the description. It is no template of cobra's: a program that runs text/template keeps every exported method
// of every type, here a tenth of its size.
func helpOf(cmd *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\nUsage:", cmd.Short)
	if cmd.Runnable() {
		b.WriteString("\n  " + cmd.UseLine())
	}
	if cmd.HasAvailableSubCommands() {
		b.WriteString("\n  " + cmd.CommandPath() + " [command]")
	}
	if cmd.HasExample() {
		b.WriteString("\n\nExamples:\n" + cmd.Example)
	}
	if cmd.HasAvailableSubCommands() {
		b.WriteString("\n\nCommands:")
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() || sub.Name() == "help" {
				fmt.Fprintf(&b, "\n  %-*s %s", sub.NamePadding(), sub.Name(), sub.Short)
			}
		}
	}
	section := func(title, text string) { b.WriteString("\n\n" + title + ":\n" + strings.TrimRight(text, " \n")) }
	if cmd.HasAvailableLocalFlags() {
		section("Flags", cmd.LocalFlags().FlagUsages())
	}
	if cmd.HasAvailableInheritedFlags() {
		section("Global Flags", cmd.InheritedFlags().FlagUsages())
	}
	if cmd.Long != "" {
		section("Description", "\n"+cmd.Long)
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\n\nUse \"%s [command] --help\" for more information about a command.", cmd.CommandPath())
	}
	b.WriteString("\n")
	return b.String()
}
