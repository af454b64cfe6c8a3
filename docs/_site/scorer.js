// Sphinx's weights; a heading of the page of questions comes before one of another page.
var Scorer = {
  score: (result) => result[4] + (result[0] === "docs/questions" ? 6 : 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
