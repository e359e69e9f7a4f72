"""A QuestionForm of every kind of answer."""

from __future__ import annotations

SPACE = "http://mechanicalturk.amazonaws.com/AWSMechanicalTurkDataSchemas/2017-11-06/QuestionForm.xsd"


FORM = f"""<QuestionForm xmlns="{SPACE}"><Overview><Title>Cats &lt;b&gt;</Title></Overview>
<Question><QuestionIdentifier>fits</QuestionIdentifier><IsRequired>true</IsRequired>
<QuestionContent><Text>Does it fit?</Text></QuestionContent><AnswerSpecification><SelectionAnswer><Selections>
<Selection><SelectionIdentifier>yes_1</SelectionIdentifier><Text>Yes</Text></Selection>
<Selection><SelectionIdentifier>no_0</SelectionIdentifier><Text>No</Text></Selection>
</Selections></SelectionAnswer></AnswerSpecification></Question>
<Question><QuestionIdentifier>why &amp; how</QuestionIdentifier><QuestionContent><Text>Why?</Text></QuestionContent>
<AnswerSpecification><FreeTextAnswer><DefaultText>because</DefaultText></FreeTextAnswer></AnswerSpecification>
</Question></QuestionForm>"""
