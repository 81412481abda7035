package main

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// An exemption is what the commands read of one.
type exemption struct {
	ID        string     `json:"id"`
	CIDR      string     `json:"cidr"`
	Ports     []uint16   `json:"ports"`
	Orgs      []string   `json:"orgs"`
	Note      string     `json:"note"`
	ExpiresAt *time.Time `json:"expires_at"`
}

// opens is its ports for a reader.
func (e exemption) opens() string {
	if len(e.Ports) == 0 {
		return "all but 25"
	}
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(e.Ports), " ", ","), "[]")
}

func (a *app) floor() *cobra.Command {
	c := &cobra.Command{Use: "floor", Short: "What is open of the addresses that no policy opens", Long: "Private ranges and port 25 are closed to every org, whatever its policy says. An exemption opens a range, for\n" +
		"the orgs that it names, and for their rules that allow the host or the address. Who installed portreeve may make one; no org can."}
	group(c)
	c.AddCommand(a.floorList(), a.floorExempt(), a.floorRevoke())
	return c
}

func (a *app) floorList() *cobra.Command {
	return &cobra.Command{Use: "list", Short: "List the exemptions, those of the configuration file too", Args: exactly(), RunE: func(c *cobra.Command, _ []string) error {
		var all struct {
			Exemptions []exemption `json:"exemptions"`
			Configured []exemption `json:"configured"`
		}
		return a.answer(c.Context(), http.MethodGet, "/platform/floor-exemptions", nil, &all, func() {
			rows := [][]string{{"ID", "RANGE", "PORTS", "ORGS", "ENDS", "NOTE"}}
			for _, e := range append(all.Exemptions, all.Configured...) {
				if e.ID == "" {
					e.ID = "(configuration)"
				}
				rows = append(rows, []string{e.ID, e.CIDR, e.opens(), strings.Join(e.Orgs, ","), moment(e.ExpiresAt), orDash(e.Note)})
			}
			a.table(rows)
		})
	}}
}

func (a *app) floorExempt() *cobra.Command {
	var orgs []string
	var ports []uint
	var note string
	var lasts time.Duration
	c := &cobra.Command{Use: "exempt RANGE", Short: "Open a range for some orgs, at once and without a restart", Example: "  portreeve floor exempt 10.20.0.0/16 --org acme-1f2e3d4c --port 5432 --note 'their database' --for 720h",
		Args: exactly("RANGE"), RunE: func(c *cobra.Command, args []string) error {
			if len(orgs) == 0 {
				return &usageError{c.CommandPath(), fmt.Errorf("--org is missing: name who may use it, by id or slug, or all with --org '*'")}
			}
			body := map[string]any{"cidr": args[0], "orgs": orgs}
			if len(ports) > 0 {
				body["ports"] = ports
			}
			if note != "" {
				body["note"] = note
			}
			if c.Flags().Changed("for") {
				body["for"] = lasts.String()
			}
			var e exemption
			return a.answer(c.Context(), http.MethodPost, "/platform/floor-exemptions?wait=applied", body, &e, func() {
				fmt.Fprintln(a.out, e.ID)
				a.say("portreeve: %s is open on ports %s to %s, for rules that allow its hosts or addresses", e.CIDR, e.opens(), strings.Join(e.Orgs, ","))
			})
		}}
	c.Flags().StringSliceVar(&orgs, "org", nil, "who may use it, by id or slug; '*' is every org")
	c.Flags().UintSliceVar(&ports, "port", nil, "on these ports; default all but 25")
	c.Flags().StringVar(&note, "note", "", "why")
	c.Flags().DurationVar(&lasts, "for", 0, "how long; default until it is revoked")
	return c
}

func (a *app) floorRevoke() *cobra.Command {
	return &cobra.Command{Use: "revoke ID", Short: "Close what an exemption opened; connections that it allowed end", Args: exactly("ID"), RunE: func(c *cobra.Command, args []string) error {
		return a.answer(c.Context(), http.MethodDelete, "/platform/floor-exemptions/"+segment(args[0])+"?wait=applied", nil, nil, func() { a.say("portreeve: %s opens nothing any more", args[0]) })
	}}
}
