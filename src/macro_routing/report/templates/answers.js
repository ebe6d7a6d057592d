// Hides the answers that lack the words typed into the search field, and says which boxes scroll sideways; everything else
// works without a script.
function markCutBoxes() {
  for (const box of document.querySelectorAll('.scroll')) {
    box.classList.toggle('cut', box.scrollWidth > box.clientWidth + 1);
  }
}
markCutBoxes();
addEventListener('resize', markCutBoxes);
document.addEventListener('toggle', markCutBoxes, true);
for (const box of document.querySelectorAll('.answers')) {
  const field = box.querySelector('input[type=search]');
  const status = box.querySelector('output');
  const answers = [...box.querySelectorAll('.answer')].map((answer) => [answer, answer.textContent.toLowerCase()]);
  field.parentElement.hidden = false;
  field.addEventListener('input', () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const [answer, text] of answers) {
      answer.hidden = !words.every((word) => text.includes(word));
      count += !answer.hidden;
    }
    status.textContent = words.length ? ` ${count} found` : '';
  });
}
