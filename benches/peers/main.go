// Peers writes the transitions of runs for a time, in one of several ways, and prints what came of it as a line of JSON.
//
// What is written is the same in every way: see Work. A way is a Sender, and a row of the table of commands.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

// A command takes its flags from the set, and measures.
type command func(ctx context.Context, set *flag.FlagSet, arguments []string) (Report, error)

var commands = map[string]command{
	"calls": measureCalls,
	"sql":   measureSQL,
	"river": measureRiver,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	names := strings.Join(slices.Sorted(maps.Keys(commands)), "|")
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintf(os.Stderr, "usage: peers %s [FLAG...], and peers %s --help\n", names, names)
		os.Exit(2)
	}
	name := os.Args[1]
	set := flag.NewFlagSet("peers "+name, flag.ExitOnError)
	report, err := commands[name](ctx, set, os.Args[2:])
	if err == nil {
		report.Of = name
		err = json.NewEncoder(os.Stdout).Encode(report)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "peers %s: %v\n", name, err)
		os.Exit(1)
	}
}
